//! `weir`: the gateway with the bundled plugins.

#[global_allocator]
static ALLOCATOR: weir_gateway::Allocator = weir_gateway::Allocator;

fn main() -> std::process::ExitCode {
    weir_gateway::Gateway::new().run()
}
