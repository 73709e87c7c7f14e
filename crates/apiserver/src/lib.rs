//! The Kubernetes API over a store: authentication, authorization, admission, registry, HTTP. Embeddable.
