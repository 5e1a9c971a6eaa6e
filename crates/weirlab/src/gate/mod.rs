//! Whether a version is slower than another: pass, regression, or cannot tell.
pub mod command;
pub mod decide;
