//! `weir demo`: a node with a sample configuration and a built-in upstream. It sends the requests that it suggests, and
//! shows the status of each response. Then it goes on with a little traffic, so that the web UI has something to show.
use super::{demo_traffic, echo};
use crate::node::{Addresses, Node, Start};
use crate::plugins::Definitions;
use crate::settings::{Database, Listen, Listeners, Loaded};
use crate::upgrade::Launch;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use weir_proxy::Address;

const CONFIGURATION: &str = include_str!("../../../../examples/quickstart/kong.yml");

/// A request to try.
struct SampleRequest {
    /// What it shows.
    shows: &'static str,
    /// Arguments of curl, besides the URL.
    options: &'static [&'static str],
    /// Sends it over TLS.
    tls: bool,
    path: &'static str,
    /// How often it is sent.
    times: usize,
}

impl SampleRequest {
    const fn new(shows: &'static str, path: &'static str, options: &'static [&'static str]) -> SampleRequest {
        SampleRequest { shows, options, tls: false, path, times: 1 }
    }
}

const SAMPLES: &[SampleRequest] = &[
    SampleRequest::new("An open route", "/open", &[]),
    SampleRequest { times: 6, ..SampleRequest::new("rate-limiting: five a minute", "/limited", &[]) },
    SampleRequest::new("key-auth, without a key", "/key", &[]),
    SampleRequest::new("key-auth, with a key", "/key", &["-H", "apikey: demo-key"]),
    SampleRequest::new("basic-auth, without a password", "/basic", &[]),
    SampleRequest::new("basic-auth, with a password", "/basic", &["-u", "demo:demo-password"]),
    SampleRequest {
        tls: true,
        ..SampleRequest::new("TLS, with a certificate generated at the start", "/open", &["-k"])
    },
];

/// Runs the demo until it is stopped.
pub(crate) fn run(mut loaded: Loaded, definitions: Definitions) -> Result<ExitCode, String> {
    let upstream = format!("http://{}", echo::start().map_err(|error| error.to_string())?);
    let folder =
        tempfile::Builder::new().prefix("weir-demo-").tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("kong.yml");
    std::fs::write(&file, CONFIGURATION).map_err(|error| error.to_string())?;
    loaded.settings.prefix = Some(folder.path().to_owned());
    loaded.settings.declarative_config = Some(file);
    loaded.settings.database = Some(Database::Off);
    loaded.settings.analytics |= !loaded.given.contains(&"analytics");
    let has_traffic = loaded.settings.analytics;
    prefer_defaults(&mut loaded);
    let environment = move |name: &str| match name {
        "ECHO_URL" => Some(upstream.clone()),
        _ => std::env::var(name).ok(),
    };
    let start = Start { launch: Launch::none(), predecessor: None, temporary: Some(folder) };
    let node = Node::start(loaded, Box::new(environment), definitions, start);
    let mut node = node.map_err(|error| error.to_string())?;
    node.open().map_err(|error| error.to_string())?;
    let addresses = node.addresses().clone();
    thread::Builder::new()
        .name("demo".to_owned())
        .spawn(move || {
            let listener = addresses.proxy.iter().find_map(Address::ip);
            if tour(&addresses, &mut io::stdout()).is_ok()
                && let Some(listener) = listener.filter(|_| has_traffic)
            {
                demo_traffic::send(reachable(listener));
            }
        })
        .map_err(|error| error.to_string())?;
    node.serve();
    Ok(ExitCode::SUCCESS)
}

/// Uses any free port where a default port is in use.
fn prefer_defaults(loaded: &mut Loaded) {
    let settings = &mut loaded.settings;
    let listeners = [
        ("proxy_listen", &mut settings.proxy_listen),
        ("admin_listen", &mut settings.admin_listen),
        ("admin_gui_listen", &mut settings.admin_gui_listen),
        ("status_listen", &mut settings.status_listen),
    ];
    for (name, Listeners(listeners)) in listeners {
        if !loaded.given.contains(&name) {
            listeners.iter_mut().for_each(prefer_default);
        }
    }
}

fn prefer_default(listen: &mut Listen) {
    if let Address::Ip(address) = &mut listen.address
        && TcpListener::bind(*address).is_err()
    {
        address.set_port(0);
    }
}

/// Sends every request and prints the status of its response.
fn tour(addresses: &Addresses, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "Weir serves examples/quickstart/kong.yml. These requests are made just now:")?;
    for attempt in SAMPLES {
        let listeners = if attempt.tls { &addresses.proxy_ssl } else { &addresses.proxy };
        let Some(listener) = listeners.iter().find_map(Address::ip) else { continue };
        let arguments = arguments(attempt, listener);
        let statuses: Vec<_> = (0..attempt.times).map(|_| status(&arguments)).collect();
        let line: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
        writeln!(output, "\n{}\n  {}\n  curl -i {}", attempt.shows, statuses.join(" "), line.join(" "))?;
    }
    let list =
        |addresses: &[Address]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    writeln!(
        output,
        "\nHTTP {} · HTTPS {} · Admin API {} · status {}",
        list(&addresses.proxy),
        list(&addresses.proxy_ssl),
        list(&addresses.admin),
        list(&addresses.status),
    )?;
    if let Some(pages) = addresses.admin_gui.iter().find_map(Address::ip) {
        writeln!(output, "Open http://{} to see what the gateway does", reachable(pages))?;
    }
    writeln!(output, "Serving on; Ctrl-C stops it.")
}

/// Where this machine reaches a listener.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

fn arguments(attempt: &SampleRequest, listener: SocketAddr) -> Vec<String> {
    let scheme = if attempt.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{}", reachable(listener), attempt.path);
    attempt.options.iter().map(|option| (*option).to_owned()).chain([url]).collect()
}

/// The status that curl sees.
fn status(arguments: &[String]) -> String {
    let curl = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "--max-time", "10"])
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match curl {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("(not tried: curl: {error})"),
    }
}

/// An argument as a shell reads it back.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@[]".contains(c);
    if argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}
