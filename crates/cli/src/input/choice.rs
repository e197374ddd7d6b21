//! The choice of the field that identifies the client, if the command line names none.

use super::client::Clients;
use super::sample::Sample;
use tollgate_report::error::Error;

/// Usual names of the client field, the most certain first. Names are compared without case.
const KEY_NAMES: &str = "\
    client client_ip clientip client_addr remote_addr remote_ip remote_host src_ip srcip \
    source_ip sourceipaddress c-ip id.orig_h src source ip ip_address actor user user_id \
    username account api_key tenant customer key host";

/// The fields that identify the client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChosenClient {
    /// Their names, in order.
    pub fields: Vec<String>,
    /// What was chosen and why, in one line.
    pub why: Option<String>,
}

/// Chooses the field that identifies the client.
///
/// # Errors
/// Returns an error if no field is the client; the message lists the fields.
pub fn client(sample: &Sample, _clients: Clients, file: &str) -> Result<ChosenClient, Error> {
    let known = KEY_NAMES.split(' ').find_map(|name| sample.field(name));
    let field = known.ok_or_else(|| {
        let names: Vec<&str> = sample.fields.iter().map(|field| &*field.name).collect();
        let list = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::run(format!("{file}: which field is the client? Name it with --key; the fields are: {list}"))
    })?;
    Ok(ChosenClient { fields: vec![field.name.clone()], why: None })
}
