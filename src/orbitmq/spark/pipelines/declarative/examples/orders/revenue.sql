-- Computed anew with every run, from all orders that were paid by then.
CREATE MATERIALIZED VIEW revenue AS
SELECT method, count(*) AS orders, sum(amount) AS amount
FROM paid_orders
GROUP BY method;
