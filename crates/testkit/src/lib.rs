//! A cluster to test on, embedded or real. Dev-dependency only.

pub mod wire;
