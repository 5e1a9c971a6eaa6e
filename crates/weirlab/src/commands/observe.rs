//! `weirlab observe`.
use super::measuring::interruptible;
use crate::catalogue;
use crate::driver::process::Process;
use crate::host::Site;
use crate::result::{Run, store};
use crate::telemetry::{self, Grafana, Kept, Prometheus, Span, TelemetryError, queries};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often it is looked whether all still runs.
const TICK: Duration = Duration::from_millis(100);

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder of a run that was made with `--observe`
    folder: PathBuf,
    /// The port of Prometheus on loopback [default: a free one]
    #[arg(long)]
    port: Option<u16>,
    /// Do without Grafana, also where it is installed
    #[arg(long)]
    no_grafana: bool,
    /// The folder with `scenarios/` and `targets/`, beside which Weir's own dashboards are; else the nearest one
    #[arg(long)]
    catalogue: Option<PathBuf>,
}

/// Serves what a run's Prometheus kept, until Ctrl-C.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let message = |error: TelemetryError| error.to_string();
    let stop = interruptible()?;
    let run = store::read(&args.folder).map_err(|error| error.to_string())?;
    let site = Site::local(Box::new(Process)).map_err(|error| error.to_string())?;
    let kept = Kept { run: &args.folder, working: site.working_folder() };
    let mut prometheus = kept.open(args.port).map_err(message)?;
    let mut grafana = match args.no_grafana {
        true => None,
        false => telemetry::start_grafana(prometheus.address(), &dashboards(&args), site.working_folder())
            .map_err(message)?,
    };
    let said = said(&run, &prometheus, grafana.as_ref(), args.no_grafana);
    writeln!(io::stdout(), "{said}").map_err(|error| error.to_string())?;
    let waited = wait(&stop, &mut prometheus, grafana.as_mut());
    if let Some(grafana) = &mut grafana {
        grafana.stop().map_err(message)?;
    }
    prometheus.stop().map_err(message)?;
    waited.map(|()| ExitCode::SUCCESS)
}

/// Weir's own dashboards, in a checkout.
fn dashboards(args: &Args) -> PathBuf {
    let root = catalogue::root(args.catalogue.as_deref()).unwrap_or_default();
    root.join("grafana/dashboards")
}

fn said(run: &Run, prometheus: &Prometheus, grafana: Option<&Grafana>, no_grafana: bool) -> String {
    let address = prometheus.address();
    let mut lines = vec![format!("Prometheus: http://{address}/, with what it kept of {}", run.id)];
    let span = Span::of(run);
    match (grafana, no_grafana) {
        (Some(grafana), _) => {
            let span = span.as_ref().map(Span::of_grafana).unwrap_or_default();
            lines.push(format!("Grafana: {}", grafana.run_url(&span)));
        }
        (None, true) => {}
        (None, false) => lines.push(
            "Grafana is not on this machine: install it from https://grafana.com/grafana/download, or name its program \
             with WEIRLAB_GRAFANA=PATH"
                .to_owned(),
        ),
    }
    lines.push("\nTo try:".to_owned());
    for query in queries() {
        lines.push(format!("\n# {}\n{}", query.title, query.expression));
        lines.extend(span.as_ref().map(|span| span.graph(address, query)));
    }
    lines.push("\nCtrl-C ends it.".to_owned());
    lines.join("\n")
}

/// Waits for the user, or for a server that ends by itself.
fn wait(
    stop: &AtomicBool,
    prometheus: &mut Prometheus,
    mut grafana: Option<&mut Grafana>,
) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        if !prometheus.alive() {
            return Err(format!(
                "prometheus ended by itself{}",
                crate::driver::last_lines(&prometheus.log())
            ));
        }
        if grafana.as_mut().is_some_and(|grafana| !grafana.alive()) {
            return Err("grafana ended by itself".to_owned());
        }
        thread::sleep(TICK);
    }
    Ok(())
}
