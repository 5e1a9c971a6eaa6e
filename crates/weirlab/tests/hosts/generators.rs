//! Generators of other makers on the machine of the load: found there, or copied to it.
use super::network::await_true;
use super::{MACHINES, await_clean, call, check_refused, data, network, of, said, weirlab};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn generators_load_from_the_machine_of_the_load() {
    let network = network();
    let hosts = network.hosts(&MACHINES, "");
    let mut run = weirlab(
        &network,
        &hosts,
        &["--generator", "weirlab,wrk,h2load", "--targets", "nginx", "--rounds", "1"],
    );
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seen = false;
    while run.try_wait().unwrap().is_none() {
        seen |= !of(network.processes("load"), "wrk").is_empty();
        assert!(of(network.processes("here"), "wrk -").is_empty(), "wrk runs here");
    }
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success() && seen, "seen: {seen}, {}", said(&output));
    let data = data(&network);
    for cell in data["cells"].as_array().unwrap() {
        let block = &cell["blocks"][0];
        assert!(block["good"].as_u64().unwrap() > 0 && block["void"].is_null(), "{cell}");
        assert!(block["target"]["cpu_us"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(block["generator_cpu_us"].as_f64().unwrap() > 0.0, "{cell}");
    }
    assert_eq!(data["cells"].as_array().unwrap().len(), 3);
    let machine = &data["manifest"]["machine"];
    assert!(machine["generator wrk"].as_str().unwrap().starts_with("wrk "), "{machine}");
    assert!(machine["generator h2load"].as_str().unwrap().starts_with("h2load "), "{machine}");
    await_clean(&network);
}

#[test]
fn a_generator_that_is_named_here_is_copied_there() {
    let network = network();
    let hosts = network.hosts(&MACHINES, "");
    let own = network.path("own");
    fs::create_dir(&own).unwrap();
    fs::copy("/usr/bin/wrk", own.join("wrk-of-mine")).unwrap();
    let mut run = weirlab(&network, &hosts, &["--targets", "nginx", "--rounds", "1", "--generator", "wrk"]);
    let output = run.env("WEIRLAB_WRK", own.join("wrk-of-mine")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let copies =
        network.output("load", &format!("find {}/cache -name wrk-of-mine", network.folder.path().display()));
    assert_eq!(copies.lines().count(), 1, "{copies}");
    assert!(data(&network)["cells"][0]["blocks"][0]["good"].as_u64().unwrap() > 0);
    await_clean(&network);
}

#[test]
fn a_generator_that_is_not_there_is_named_with_the_fix() {
    let network = network();
    let hosts = network.hosts(&MACHINES, "");
    let wanted = [
        "host load, roles: the generator wrk2 is not on it: install it there",
        "build https://github.com/giltene/wrk2",
        "WEIRLAB_WRK2=PATH: it is copied",
    ];
    check_refused(&network, &hosts, &["--generator", "wrk2"], &wanted);
    let foreign = network.path("foreign");
    fs::write(&foreign, "of another architecture").unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = weirlab(&network, &hosts, &["--generator", "wrk", "--targets", "nginx"]);
    let output = run.env("WEIRLAB_WRK", &foreign).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(
        said(&output).contains("foreign does not run there: its architecture or libraries"),
        "{}",
        said(&output)
    );
    await_clean(&network);
}

#[test]
fn a_generator_ends_with_the_session_that_was_killed() {
    let network = network();
    let hosts = network.hosts(&MACHINES, "");
    let long = [
        "run",
        "kong/plain-1",
        "--scheme",
        "http",
        "--targets",
        "nginx",
        "--generator",
        "wrk",
        "--duration",
        "600s",
    ];
    let mut run = call(&network, &hosts, &long);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_true("wrk runs", || !of(network.processes("load"), "wrk -").is_empty());
    let _ = Command::new("kill").args(["-9", &run.id().to_string()]).status();
    run.wait().unwrap();
    await_clean(&network);
}
