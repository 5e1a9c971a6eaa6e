//! The model as the other crates use it: one module for each subject.
#![allow(missing_docs)]
mod cases;
mod entities;
mod entities_page;
mod mistakes;
mod properties;
mod sample;
mod schemas;
