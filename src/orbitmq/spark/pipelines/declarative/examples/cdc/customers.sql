-- The table as it is now: of each row its last change, unless that deleted it.
CREATE MATERIALIZED VIEW customers AS
SELECT id, last.name, last.city
FROM (
  SELECT id, max_by(struct(op, name, city), version) AS last
  FROM customer_changes
  GROUP BY id
)
WHERE last.op <> 'delete';
