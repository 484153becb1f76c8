//! `tiercel completions`: what shells need to complete a command line.

use clap::Args;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  tiercel completions bash > ~/.local/share/bash-completion/completions/tiercel
      for bash; new shells then complete verbs and options
  tiercel completions fish > ~/.config/fish/completions/tiercel.fish
      for fish";

/// Print completions for a shell.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The text to print.
pub fn run(arguments: &Arguments, mut command: clap::Command) -> anyhow::Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tiercel", &mut text);
    Ok(String::from_utf8(text)?)
}
