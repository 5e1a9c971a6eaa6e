//! Weir with the bundled plugins and `api-token`.
mod api_token;
mod credential;

fn main() -> std::process::ExitCode {
    let api_token = weir_plugin::define::<api_token::ApiToken>();
    weir_gateway::Gateway::new().with_plugin(api_token).run()
}
