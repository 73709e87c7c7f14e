//! The project's one CEL: checker, evaluator with a cost limit, Kubernetes' libraries. Pure.
