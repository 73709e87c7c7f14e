//! The built-in kinds of Kubernetes as data: schema table, discovery, defaults, validation, columns. Pure.
