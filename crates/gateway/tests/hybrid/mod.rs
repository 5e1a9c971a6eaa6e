//! Control planes and data planes: Weir's, and fakes of Kong's.
mod fakes;
mod payload;
