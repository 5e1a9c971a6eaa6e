//! What packages install beside the program: completions and manual pages.
use super::Kong;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn bash_accepts_the_completions_and_completes_a_command() {
    let kong = Kong::bare();
    let script = kong.run(&["weir", "completions", "bash"]);
    assert_eq!(script.code, Some(0), "{}", script.stderr);
    let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let question = "COMP_WORDS=(weir rel) COMP_CWORD=1\n_weir weir rel weir\necho ${COMPREPLY[@]}\n";
    bash.stdin.take().unwrap().write_all((script.stdout + question).as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "reload\n");
}

#[test]
fn every_command_has_a_manual_page_except_hidden_ones() {
    let kong = Kong::bare();
    kong.run(&["weir", "man", "pages/man1"]).expect(0, "", "");
    let page = |name: &str| fs::read_to_string(kong.path("pages/man1").join(name));
    assert!(page("weir.1").unwrap().contains("weir\\-run(1)"));
    assert!(page("weir-run.1").unwrap().contains("SIGUSR1"));
    assert!(page("weir-migrations-bootstrap.1").unwrap().contains(".SH SYNOPSIS"));
    assert!(page("weir-man.1").is_err());
    assert!(page("weir-config-help.1").is_err());
    fs::write(kong.path("file"), "").unwrap();
    kong.run(&["weir", "man", "file"]).expect(1, "", "file: ");
}
