//! `weirlab upstream`.
use crate::event_loop::{Announcement, ServiceArgs, ServiceError};
use crate::upstream::{Answers, Delay, Plan, Stall, start};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// Where to listen with TLS, under a certificate made at the start; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    listen_tls: Vec<SocketAddr>,
    /// How many threads serve.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// The length of the body of every answer.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, conflicts_with = "body")]
    body_bytes: usize,
    /// The body of every answer. {method}, {path}, {n} (the request's number, by thread), {headers} and {header:NAME}
    /// stand for what the request brought.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// The status of answers, or a mix of statuses by weight such as `200:95,503:5`.
    #[arg(long, value_name = "MIX", default_value = "200")]
    status: String,
    /// A field of every answer, such as `X-Served-By: one`; may be given several times.
    #[arg(long, value_name = "FIELD")]
    header: Vec<String>,
    /// How long to wait before each answer: `5ms`, `exp:5ms` (exponential, of that mean) or `uniform:1ms..9ms`.
    #[arg(long, value_name = "DELAY")]
    delay: Option<Delay>,
    /// How many answers each thread works on at a time, for as long as `--delay` says; further requests wait in line, as in
    /// a server with so many workers.
    #[arg(long, value_name = "N", requires = "delay", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    at_once: Option<u32>,
    /// Freeze all connections now and then, such as `every 10s for 300ms`.
    #[arg(long, value_name = "STALL")]
    stall: Option<Stall>,
    /// Send bodies in chunks.
    #[arg(long)]
    chunked: bool,
    /// Send each event of a body (up to an empty line) as a chunk of its own, and wait so long before the next, as a language
    /// model does; written as of `--delay`. With `0s` the body is sent as without it.
    #[arg(long, value_name = "DELAY", requires = "chunked", conflicts_with = "at_once")]
    event_pause: Option<Delay>,
    /// Take what comes over HTTP/2 for calls of gRPC, each answered with a message of that body.
    #[arg(long)]
    grpc: bool,
    /// The seed of delays and of the mix of statuses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let plan = plan(&args)?;
    serve(&args.service, plan).map_err(|error| error.to_string())
}

fn serve(service: &ServiceArgs, plan: Plan) -> Result<ExitCode, ServiceError> {
    service.settle()?;
    let upstream = start(plan)?;
    let mut announcement = Announcement::new(upstream.listen.clone());
    announcement.listen_tls.clone_from(&upstream.listen_tls);
    service.serve(&upstream.running, &announcement)
}

fn plan(args: &Args) -> Result<Plan, String> {
    let body = match &args.body {
        Some(text) => text.clone().into_bytes(),
        None => vec![b'x'; args.body_bytes],
    };
    let event_pause = args.event_pause.filter(|pause| *pause != Delay::Constant(Duration::ZERO));
    let answers = Answers::new(&args.status, &args.header, body, args.chunked)?;
    let answers = if event_pause.is_some() { answers.in_events() } else { answers };
    let only_tls = args.service.listen.is_empty() && !args.listen_tls.is_empty();
    Ok(Plan {
        listen: if only_tls { Vec::new() } else { args.service.listeners() },
        listen_tls: args.listen_tls.clone(),
        threads: args.threads.into(),
        answers: if args.grpc { answers.to_calls() } else { answers },
        delay: args.delay,
        at_once: args.at_once.map(|at_once| at_once as usize),
        event_pause,
        stall: args.stall,
        seed: args.seed,
    })
}
