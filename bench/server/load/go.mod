module orbitmq/bench/server/load

go 1.20
