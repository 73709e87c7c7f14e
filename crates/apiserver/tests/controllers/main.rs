//! The controllers that clients rely on, in process and through the API.

mod addresses;
mod aggregation;
mod apiservices;
mod certificates;
mod client;
mod gc;
mod others;
mod pods;
mod tokens;
