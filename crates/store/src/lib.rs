//! The revisioned store: transactions, watch, compaction, over a durable log.
