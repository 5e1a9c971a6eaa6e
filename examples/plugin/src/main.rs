//! Weir with the bundled plugins and `api-token`.
mod api_token;
mod credential;

#[global_allocator]
static ALLOCATOR: weir_gateway::Allocator = weir_gateway::Allocator;

fn main() -> std::process::ExitCode {
    let api_token = weir_plugin::define::<api_token::ApiToken>();
    weir_gateway::Gateway::new().with_plugin(api_token).run()
}
