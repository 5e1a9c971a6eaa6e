//! The sample of Kong's performance framework, line by line: one route without plugins, three loads for each version.
//!
//! ```sh
//! cargo run --release --package weirlab --example single_route -- git:main git:HEAD~10
//! ```
//!
//! Versions are those of `weirlab run --versions`. `PERF_TEST_LOAD_DURATION` is the length of each load in seconds.
use serde_json::json;
use std::env;
use std::time::Duration;
use weirlab::script::{
    Charts, Configuration, Gateway, Load, ScriptError, Upstream, combine_results, print_and_save, setup,
};

/// What is printed is appended to it.
const RESULT: &str = "output/result.txt";

fn main() -> Result<(), ScriptError> {
    let mut versions: Vec<String> = env::args().skip(1).collect();
    if versions.is_empty() {
        versions = ["git:main", "worktree"].map(str::to_owned).to_vec();
    }
    let duration = env::var("PERF_TEST_LOAD_DURATION").ok().and_then(|seconds| seconds.parse().ok());
    let duration = Duration::from_secs_f64(duration.unwrap_or(10.0));
    let mut charts = Charts::new("single_route");

    for version in &versions {
        print_and_save(&format!("### Test Suite: {version} #simple #no_plugins #single_route"), RESULT)?;
        // perf.setup_kong(version)
        let lab = setup(version)?;
        let mut configuration = Configuration::new();

        // perf.start_worker: location = /test { return 200; }
        let upstream = lab.start_upstream(Upstream::new().status(200))?;

        // bp.services:insert and bp.routes:insert
        let service = configuration.insert("services", json!({ "url": upstream.url("/test") }));
        configuration
            .insert("routes", json!({ "paths": ["/s1-r1"], "service": service, "strip_path": true }));

        // before_each: perf.start_kong
        let mut gateway = lab.start_gateway(Gateway::new(configuration))?;

        // it("#single_route")
        let mut results = Vec::new();
        for i in 1..=3 {
            let load = Load::new("/s1-r1").connections(1000).threads(5).duration(duration);
            let result = lab.start_load(&gateway, load)?.wait_result()?;
            print_and_save(&format!("### Result for {version} (run {i}):\n{result}"), RESULT)?;
            results.push(result);
        }
        let combined = combine_results(&results)?;
        print_and_save(&format!("### Combined result for {version}:\n{combined}"), RESULT)?;

        // after_each: perf.stop_kong; then perf.save_error_log
        gateway.stop()?;
        gateway.save_log(format!("output/{}-single_route.log", version.replace([':', '/'], "#")))?;
        charts.add(version, "#single_route", combined);
        // lazy_teardown: perf.teardown is the end of the scope.
    }

    charts.save("output")?;
    Ok(())
}
