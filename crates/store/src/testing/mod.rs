//! A worse disk.
