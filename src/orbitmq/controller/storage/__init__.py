"""Storage of broker groups: a local file for one controller, or etcd for several of which one leads."""
