//! Kubernetes API machinery, pure: names, selectors, quantities, schemas, patches, server-side apply.
