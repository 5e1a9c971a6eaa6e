//! The web UI: pages that are rendered here, complete without script, from what the Admin API answers.
//!
//! It is a client of the Admin API in the same process: each page asks it with the token of the person who looks, so
//! that its authentication, its checks and its audit log hold for the UI too. It knows neither the proxy nor the stores.
//!
//! A request of a browser passes `server` (assets, security headers), `session` (who asks, and whether a form is
//! ours), one of `pages`, which asks `api`, and `page`, the frame around what it renders.
mod api;
mod assets;
mod chart;
mod export;
mod form;
mod format;
mod frame;
mod history;
mod kinds;
mod page;
mod pages;
mod schema;
mod server;
mod session;
mod texts;
mod url;
mod usage;

pub use server::{Options, router};
