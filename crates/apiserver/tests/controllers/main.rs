//! The controllers that clients rely on, in process and through the API.

mod apiservices;
mod client;
mod gc;
mod others;
mod pods;
