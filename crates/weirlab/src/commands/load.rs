//! `weirlab load`.
use crate::generator::{Generator, Kind, Script, Task};
use crate::load::arguments::{self, Url};
use crate::load::document::{Document, write_log};
use crate::load::text::{Summary, wrk};
use crate::load::{
    Expect, LoadError, Outcome, Pace, Plan, Protocol, RequestTemplate, Requests, Variable, WarmUp, reach,
};
use clap::ValueEnum;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// What a shell reports of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// Generate load on a URL. Load only what is yours: servers and networks of others are not to be measured unasked.
///
/// Exits with 0 when something was answered as expected, 1 when nothing was, 130 after Ctrl-C (what was measured so far
/// is printed), 3 when no load could be generated.
#[derive(clap::Args, Debug)]
pub struct Args {
    // Boxed, as the other commands have far fewer.
    #[command(flatten)]
    options: Box<Options>,
}

#[derive(clap::Args, Debug)]
struct Options {
    /// Such as http://127.0.0.1:8000/path; the path may name variables, as in /orders/{id}.
    #[arg(value_parser = arguments::url)]
    url: Url,
    /// Connections that are open at once, over all threads.
    #[arg(short, long, default_value_t = 10)]
    connections: usize,
    /// Threads.
    #[arg(short, long, default_value_t = 2)]
    threads: usize,
    /// How long to measure: 10s, 500ms, 2m.
    #[arg(short, long, default_value = "10s", value_parser = arguments::duration)]
    duration: Duration,
    /// Requests per second, whatever the answers do (an open loop). Without it each connection sends its next request
    /// when the last is answered (a closed loop).
    #[arg(short = 'R', long)]
    rate: Option<f64>,
    /// How the requests of an open loop arrive.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson, requires = "rate")]
    arrivals: Arrivals,
    /// A header, such as 'apikey: secret'; may be repeated and name variables.
    #[arg(short = 'H', long = "header", value_parser = arguments::header)]
    headers: Vec<(String, String)>,
    /// What is spoken: HTTP/2 and what it carries by ALPN, or without TLS by prior knowledge.
    #[arg(long, value_enum, default_value_t = Spoken::Http1)]
    protocol: Spoken,
    /// Requests that are in flight at once on each connection of HTTP/2, as -m of h2load.
    #[arg(short = 'm', long, default_value_t = 1)]
    streams: usize,
    /// The method; without it GET, or POST of gRPC.
    #[arg(long)]
    method: Option<String>,
    /// The body, or @FILE; may name variables. Of gRPC and WebSocket, the message.
    #[arg(long, default_value = "")]
    body: String,
    /// A path to ask for instead of the URL's, such as /orders/{id}, or 3:/orders for one that is three times as
    /// frequent; may be repeated.
    #[arg(long = "path", value_parser = arguments::path)]
    paths: Vec<(u32, String)>,
    /// `NAME=VALUES [DISTRIBUTION] [with OTHER]`: what {NAME} stands for. VALUES is 0..100, red,green,blue or @FILE with
    /// one in each line; DISTRIBUTION is uniform, zipf, zipf:EXPONENT, kong or round-robin; `with` takes over the index
    /// that another variable has drawn. May be repeated.
    #[arg(long = "variable", value_parser = arguments::variable)]
    variables: Vec<Variable>,
    /// How long an answer may take.
    #[arg(long, default_value = "2s", value_parser = arguments::duration)]
    timeout: Duration,
    /// Open a connection for each request.
    #[arg(long)]
    no_keep_alive: bool,
    /// Also report how long the first byte of each body took.
    #[arg(long)]
    first_byte: bool,
    /// The time before the measured window, or its bounds as in 200ms..3s: then it ends when answers come steadily.
    #[arg(long, default_value = "200ms..3s", value_parser = arguments::warm_up)]
    warm_up: WarmUp,
    /// The statuses that are right, as in 200,404; without it 200 to 399.
    #[arg(long, value_delimiter = ',')]
    expect_status: Vec<u16>,
    /// What the body of each answer must contain.
    #[arg(long)]
    expect_body: Option<String>,
    /// What generates the load.
    #[arg(long, value_enum, default_value_t = Kind::Weirlab)]
    generator: Kind,
    /// A script that k6 runs as it is, with the environment of this command; its hosts become the URL's.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The seed of every random choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Wrk)]
    format: Format,
}

/// The protocol.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spoken {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// Unary calls of gRPC.
    Grpc,
    /// Messages that a server returns.
    Websocket,
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// Independently of each other, with exponential gaps.
    Poisson,
}

/// What to print.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// As wrk does.
    Wrk,
    /// Everything, histograms included.
    Json,
    /// An HdrHistogram log.
    Hdr,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let args = *args.options;
    let plan = plan(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one does not wait for the results.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| format!("signals cannot be received: {error}"))?;
    }
    let script = args.script.clone().map(|file| Script { file, ..Script::default() });
    if script.is_some() && args.generator != Kind::K6 {
        return Err("--script is for k6: add --generator k6".to_owned());
    }
    let generator = Generator::find(args.generator).map_err(|error| error.to_string())?;
    let task = Task { plan: &plan, generator: &generator, script: script.as_ref() };
    let outcome = task.run(&std::env::temp_dir(), &mut |_| {}, &stop).map_err(|error| error.to_string())?;
    let text =
        print(&args, &plan, &outcome).map_err(|error| format!("the results cannot be formatted: {error}"))?;
    io::stdout().write_all(&text).map_err(|error| format!("the results cannot be written: {error}"))?;
    Ok(match (stop.load(Ordering::Relaxed), outcome.good) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, 0) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn plan(args: &Options) -> Result<Plan, String> {
    Ok(Plan {
        addresses: vec![resolve(&args.url)?],
        host: args.url.authority.clone(),
        protocol: protocol(args),
        tls: args.url.tls,
        connections: args.connections,
        threads: args.threads,
        cpus: Vec::new(),
        keep_alive: !args.no_keep_alive,
        first_byte: args.first_byte,
        pace: match (args.rate, args.arrivals) {
            (None, _) => Pace::Closed,
            (Some(rate), Arrivals::Constant) => Pace::Constant(rate),
            (Some(rate), Arrivals::Poisson) => Pace::Poisson(rate),
        },
        warm_up: args.warm_up,
        duration: args.duration,
        timeout: args.timeout,
        requests: requests(args)?,
        seed: args.seed,
        live: None,
    })
}

fn protocol(args: &Options) -> Protocol {
    let streams = args.streams;
    match args.protocol {
        Spoken::Http1 => Protocol::Http1,
        Spoken::Http2 => Protocol::Http2 { streams },
        Spoken::Grpc => Protocol::Grpc { streams },
        Spoken::Websocket => Protocol::WebSocket,
    }
}

fn requests(args: &Options) -> Result<Requests, String> {
    let body = arguments::content(&args.body)?;
    let expect = Expect {
        status: args.expect_status.clone(),
        body_length: None,
        body_contains: args.expect_body.clone(),
    };
    let usual = if matches!(args.protocol, Spoken::Grpc) { "POST" } else { "GET" };
    let method = args.method.as_deref().unwrap_or(usual);
    let own = [(1, args.url.path.clone())];
    let paths = if args.paths.is_empty() { &own[..] } else { &args.paths };
    let template = |(weight, path): &(u32, String)| RequestTemplate {
        weight: *weight,
        method: method.to_owned(),
        path: path.clone(),
        headers: args.headers.clone(),
        body: body.clone(),
        expect: expect.clone(),
    };
    Ok(Requests { templates: paths.iter().map(template).collect(), variables: args.variables.clone() })
}

/// The first of the host's addresses at which something listens.
fn resolve(url: &Url) -> Result<SocketAddr, String> {
    let host = &url.host;
    let addresses = (host.as_str(), url.port)
        .to_socket_addrs()
        .map_err(|error| format!("the host {host:?} cannot be resolved ({error}): correct the URL"))?;
    let mut refusal: Option<LoadError> = None;
    for address in addresses {
        match reach(address) {
            Ok(()) => return Ok(address),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.map_or_else(|| format!("the host {host:?} has no address"), |error| error.to_string()))
}

fn print(args: &Options, plan: &Plan, outcome: &Outcome) -> io::Result<Vec<u8>> {
    let scheme = if args.url.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{}", args.url.authority, args.url.path);
    let mut out = Vec::new();
    match args.format {
        Format::Wrk => out.write_all(wrk(&Summary::of(&url, plan, outcome)).as_bytes())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &Document::new(&url, plan, outcome))?;
            out.push(b'\n');
        }
        Format::Hdr => write_log(&mut out, outcome, SystemTime::now())?,
    }
    Ok(out)
}
