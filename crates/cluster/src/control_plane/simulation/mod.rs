//! A fleet under a deterministic scheduler: control planes that share a store and lag behind it, data planes that move between
//! them, on one thread, with a clock and connections in memory. A seed decides what is committed when, how late each message
//! and each control plane is, which connections are cut, which control planes start again, and what data planes refuse.
mod fleet;
mod node;
mod store;
mod wire;

weir_simulation::simulation_tests!(fleet::run);
