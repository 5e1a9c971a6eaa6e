//! Runs Lua code of the configuration before other plugins. Like Kong's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: pre-function
//!     config:
//!       access:
//!         - |
//!           if kong.request.get_header("x-blocked") then
//!             return kong.response.exit(403, { message = "blocked" })
//!           end
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

crate::functions::plugin!(PreFunction, "pre-function", 1_000_000);
