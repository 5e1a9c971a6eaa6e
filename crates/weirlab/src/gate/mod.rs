//! Whether a version is slower than another: pass, regression, or cannot tell.
pub mod decide;
