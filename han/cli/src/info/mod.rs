//! `han info`: what this machine offers and what this version would make of it: cores and caches,
//! reduction kernels, ways to share memory with the verdict of a trial, network, configuration. Or how
//! ranks form groups and trees on this machine or on one that is described.

mod hardware;
mod placement;
mod providers;
pub(crate) mod trial;

use std::io::Write;
use std::process::ExitCode;

use comfy_table::Table;
use han::{Config, Entry, LogLevel};
use reduce_kernels::{Datatype, Isa, Operator, kernel, say, table};
use serde::Serialize;

use crate::Result;
use crate::numbers::bytes_text;
use crate::output::stdout;
use crate::status::ranges_text;
use crate::tables;
use hardware::Hardware;
pub(crate) use hardware::machine;
use providers::Provider;
use trial::Trial;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// This process is the second rank of a trial; set by the process that starts it
    #[arg(long, hide = true)]
    trial_peer: bool,
    #[command(flatten)]
    placement: placement::Args,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.trial_peer {
        // The other side says what went wrong.
        return Ok(if trial::serve().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if args.placement.given() {
        args.placement.show(args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let info = Info::gather()?;
    if args.json {
        info.print_json()?
    } else {
        info.print()?
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Info {
    version: &'static str,
    machine: String,
    hardware: Hardware,
    kernels: Kernels,
    copy_methods: Vec<Trial>,
    providers: Vec<Provider>,
    /// Why there are none.
    network_error: Option<String>,
    configuration: Vec<Setting>,
}

/// The instruction sets of the reduction kernels.
#[derive(Serialize)]
struct Kernels {
    available: Vec<&'static str>,
    used: Vec<KernelUse>,
}

#[derive(Serialize)]
struct KernelUse {
    datatype: &'static str,
    operator: &'static str,
    isa: &'static str,
}

/// One line of the configuration.
#[derive(Serialize)]
struct Setting {
    key: &'static str,
    value: String,
    origin: String,
    variable: &'static str,
    meaning: &'static str,
}

impl Info {
    fn gather() -> Result<Self> {
        let used = table().map(|(datatype, operator, isa)| KernelUse {
            datatype: datatype.name(),
            operator: operator.name(),
            isa: isa.name(),
        });
        let config = Config::from_environment()?;
        tell_doubts(&config);
        let (providers, network_error) = providers::find(&config);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            machine: machine(),
            hardware: Hardware::read()?,
            kernels: Kernels { available: Isa::available().map(Isa::name).collect(), used: used.collect() },
            copy_methods: trial::all(&config),
            providers,
            network_error,
            configuration: configuration(&config),
        })
    }

    fn print_json(&self) -> Result<()> {
        Ok(writeln!(stdout(), "{}", serde_json::to_string(self)?)?)
    }

    fn print(&self) -> Result<()> {
        let mut out = stdout();
        writeln!(out, "han {} | {}\n", self.version, self.machine)?;
        self.hardware.print(&mut out)?;
        writeln!(out, "\nReduction kernels (this CPU has {}):", self.kernels.available.join(", "))?;
        writeln!(out, "{}", kernel_table())?;
        writeln!(out, "\nSharing memory between processes, tried just now:")?;
        writeln!(out, "{}", trial::table(&self.copy_methods))?;
        writeln!(out, "\nNetwork, for jobs over several nodes (HAN_PROVIDER=name,... and HAN_INTERFACE take others):")?;
        match &self.network_error {
            Some(error) => writeln!(out, "none: {error}")?,
            None => writeln!(out, "{}", providers::table(&self.providers))?,
        }
        let (of_keys, of_variables): (Vec<_>, Vec<_>) =
            self.configuration.iter().partition(|setting| setting.variable == "HAN_SET");
        let variables = of_variables.into_iter().map(|setting| (setting.variable, setting));
        writeln!(out, "\nConfiguration by variables:\n{}", settings_table("variable", variables))?;
        let keys = of_keys.into_iter().map(|setting| (setting.key, setting));
        writeln!(out, "\nConfiguration by HAN_SET=key=value,... or `han bench --set key=value`:")?;
        Ok(writeln!(out, "{}", settings_table("key", keys))?)
    }
}

fn settings_table<'a>(name: &str, settings: impl Iterator<Item = (&'static str, &'a Setting)>) -> Table {
    let mut table = tables::plain([name, "value", "from", "meaning"]);
    for (name, Setting { value, origin, meaning, .. }) in settings {
        table.add_row([name, value, origin, meaning]);
    }
    table
}

/// Says what may not be meant, as rank 0 of a job does.
pub(crate) fn tell_doubts(config: &Config) {
    if config.log >= LogLevel::Warn {
        config.doubts().iter().for_each(|doubt| say(&format!("han: {doubt}")));
    }
}

fn configuration(config: &Config) -> Vec<Setting> {
    let setting = |Entry { key, value, origin, variable, meaning }| Setting { key, value, origin, variable, meaning };
    config.entries().into_iter().map(setting).collect()
}

/// Datatypes by operators; `-` where MPI defines nothing.
fn kernel_table() -> Table {
    let names = Operator::ALL.map(Operator::name);
    let mut table = tables::plain(["datatype"].iter().chain(&names));
    for datatype in Datatype::ALL {
        let isa = |operator| kernel(datatype, operator).map_or("-", |kernel| kernel.isa.name());
        table.add_row([datatype.name()].into_iter().chain(Operator::ALL.map(isa)));
    }
    table
}
