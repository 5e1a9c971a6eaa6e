//! `weir`: the gateway with the bundled plugins.

fn main() -> std::process::ExitCode {
    weir_gateway::Gateway::new().run()
}
