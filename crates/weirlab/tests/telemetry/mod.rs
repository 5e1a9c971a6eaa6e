//! Runs that a real Prometheus scrapes, what it kept of them, and results that are written to another.
mod observed;
mod prometheus;
mod remote_write;
