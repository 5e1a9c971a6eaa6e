//! Control planes and data planes: Weir's, and fakes of Kong's.
mod bad_peers;
mod drills;
mod fakes;
mod payload;
mod versions;
mod walkthrough;
mod with_kong;
mod with_kong_rpc;
