//! The controllers of Conductor, on kube-rs. They see the Kubernetes API and nothing else.
