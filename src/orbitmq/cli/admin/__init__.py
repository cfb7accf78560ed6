"""Commands of operators: a thin layer over ``orbitmq.admin``. Parse, call, print."""
