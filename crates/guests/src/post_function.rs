//! Runs Lua code of the configuration after other plugins. Like Kong's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: post-function
//!     config:
//!       access:
//!         - kong.service.request.set_header("x-route", kong.router.get_route().name)
//! ```
//!
//! Each field holds code for one phase. Code that returns a function runs once; from then on that function runs, so that
//! what stands before it is done once per worker. The code runs in a sandbox, unless `untrusted_lua=on`.
//! [Lua](../lua.md) says what it can use, and what limits it.
//!
//! ## Responses
//!
//! What the code answers with `kong.response.exit`. Status 500 if it fails in `rewrite` or `access`; what fails later is
//! logged and skipped.

crate::functions::plugin!(PostFunction, "post-function", -1000);
