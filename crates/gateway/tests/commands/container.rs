//! What the entry point of Kong's image does: `kong docker-start`, and values in files.
use super::{EMPTY, Kong, is_link_to};
use crate::harness::{Upstream, one_route};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

#[test]
fn docker_start_prepares_the_folder_and_logs_to_the_container() {
    let upstream = Upstream::echoing();
    let kong = Kong::declared(&one_route(upstream.address))
        .with("KONG_PROXY_LISTEN", "127.0.0.1:0")
        .with("KONG_PROXY_ACCESS_LOG", "logs/access.log")
        .with("KONG_NGINX_USER", "root");
    fs::create_dir(kong.path("prefix")).unwrap();
    drop(UnixListener::bind(kong.path("prefix/stale.sock")).unwrap());
    let node = kong.serve(&["docker-entrypoint.sh", "kong", "docker-start"]);
    for (name, target) in
        [("access.log", "/dev/stdout"), ("admin_access.log", "/dev/stdout"), ("error.log", "/dev/stderr")]
    {
        assert!(is_link_to(&kong.path("prefix/logs").join(name), target), "{name}");
    }
    assert!(!kong.path("prefix/stale.sock").exists());
    assert_eq!(node.status("proxy", "/logged"), 200);
    let healthy = format!("weir........running\n\nKong is healthy at {}\n", kong.prefix());
    kong.run(&["kong", "health"]).expect(0, &healthy, "");
    let (code, output) = node.stop();
    assert_eq!(code, Some(0));
    assert!(output.contains("GET /logged "), "{output}");
}

#[test]
fn root_continues_as_the_user_of_the_settings() {
    let is_root = rustix::process::geteuid().is_root();
    let kong = Kong::declared(EMPTY).with("KONG_PROXY_LISTEN", "127.0.0.1:0");
    let kong = kong.with("KONG_ADMIN_LISTEN", "off").with("KONG_NGINX_MAIN_USER", "nobody");
    for folder in ["prefix", "elsewhere", "prefix/inner"] {
        fs::create_dir(kong.path(folder)).unwrap();
    }
    symlink(kong.path("elsewhere"), kong.path("prefix/inner/link")).unwrap();
    let node = kong.serve(&["kong", "docker-start"]);
    let status = fs::metadata(format!("/proc/{}", node.child.id())).unwrap();
    let of_nobody = fs::read_to_string("/etc/passwd").unwrap();
    let of_nobody = of_nobody.lines().find_map(|line| line.strip_prefix("nobody:x:")).unwrap();
    let nobody: u32 = of_nobody.split(':').next().unwrap().parse().unwrap();
    let expected = if is_root { nobody } else { rustix::process::geteuid().as_raw() };
    assert_eq!(status.uid(), expected);
    let owner = |path| fs::symlink_metadata(kong.path(path)).unwrap().uid();
    assert_eq!(["prefix", "prefix/inner", "prefix/inner/link"].map(owner), [expected; 3]);
    assert_eq!(owner("elsewhere"), rustix::process::geteuid().as_raw(), "a link is not followed");
    assert_eq!(node.status("proxy", "/"), 404);
    assert_eq!(node.stop().0, Some(0));
}

#[test]
fn root_does_not_continue_as_root_where_a_user_is_asked_for() {
    if rustix::process::geteuid().is_root() {
        let kong = Kong::declared(EMPTY).with("KONG_NGINX_USER", "no-such-user");
        kong.run(&["kong", "docker-start"]).expect(1, "", "nginx_user: the system has no user");
    }
}

#[test]
fn values_are_read_from_the_files_that_variables_name() {
    let kong = Kong::bare();
    fs::write(kong.path("level"), "loud\n").unwrap();
    let level = kong.path("level").display().to_string();
    let kong = kong.with("KONG_LOG_LEVEL_FILE", &level);
    let done = kong.run(&["docker-entrypoint.sh", "kong", "health"]);
    done.expect(1, "", "environment variable KONG_LOG_LEVEL_FILE: log_level: `loud`");
    let kong = kong.with("KONG_LOG_LEVEL", "warn");
    let both = "both KONG_LOG_LEVEL and KONG_LOG_LEVEL_FILE are set, but are exclusive";
    kong.run(&["kong", "health"]).expect(1, "", both);
    let kong = kong.with("KONG_LOG_LEVEL", "").with("KONG_LOG_LEVEL_FILE", "/no/such/file");
    kong.run(&["kong", "health"]).expect(1, "", "KONG_LOG_LEVEL_FILE: /no/such/file: No such file");
}

#[test]
fn the_entry_point_runs_any_command() {
    let kong = Kong::bare();
    let done = kong.run(&["docker-entrypoint.sh", "sh", "-c", "echo $KONG_NGINX_DAEMON; exit 7"]);
    done.expect(7, "off\n", "");
    let kong = kong.with("KONG_NGINX_DAEMON", "on");
    kong.run(&["docker-entrypoint.sh", "sh", "-c", "echo $KONG_NGINX_DAEMON"]).expect(0, "on\n", "");
    kong.run(&["docker-entrypoint.sh"]).expect(1, "", "name a command");
    kong.run(&["docker-entrypoint.sh", "no-such-command"]).expect(1, "", "no-such-command: No such file");
}
