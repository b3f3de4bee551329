//! The management address: calls there change the server.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, anyhow};

use super::Address;
use crate::flags::Flags;
use crate::persona::Persona;

/// The address under our own name.
const ADDRESS: &str = "127.0.0.1:8502";

/// The address at which calls that change the server are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Management {
    /// The address of the calls; there is none without it.
    pub address: Option<Address>,
    /// `true` if the user asked for the address. The server starts without one that is not free if
    /// nobody did.
    pub is_asked: bool,
    /// The calls that the data ports take too.
    pub data_port: DataPort,
    /// The names by which the server may be called besides its addresses.
    pub hosts: Vec<String>,
}

/// The calls that the data ports take and that change the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPort {
    /// `HandleReloadConfigRequest`, as in TensorFlow Serving.
    Reload,
    /// All.
    All,
    /// None.
    None,
}

impl Management {
    /// Reads the settings from the flags.
    pub(super) fn new(persona: Persona, flags: &Flags) -> Result<Self> {
        let given = flags.management_address.as_deref();
        let default = if persona == Persona::Tensord { ADDRESS } else { "off" };
        let address = match given.unwrap_or(default) {
            "" | "off" => None,
            text => Some(Address::parse(text)?),
        };
        let names =
            flags.management_hosts.split(',').map(str::trim).filter(|name| !name.is_empty());
        let own = address.as_ref().and_then(Address::host);
        let hosts = names.chain(own).map(str::to_owned).collect();
        let data_port = match flags.management_on_data_port {
            None => DataPort::Reload,
            Some(true) => DataPort::All,
            Some(false) => DataPort::None,
        };
        Ok(Self { address, is_asked: given.is_some(), data_port, hosts })
    }
}

/// The address of `--bind_address`; none if all are meant.
pub(super) fn bind_address(text: &str) -> Result<Option<IpAddr>> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare {
        "" => Ok(None),
        "localhost" => Ok(Some(Ipv4Addr::LOCALHOST.into())),
        _ => {
            let wrong =
                |_| anyhow!("--bind_address={text}: expected an address, as in 127.0.0.1 or ::1");
            bare.parse().map(Some).map_err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(persona: Persona, args: &[&str], address: Option<&str>, data_port: DataPort) {
        let found = Management::new(persona, &crate::flags::parse(args)).unwrap();
        let found_address = found.address.map(|address| address.to_string());
        assert_eq!((found_address.as_deref(), found.data_port), (address, data_port), "{args:?}");
    }

    #[test]
    fn changes_have_an_address_of_their_own_under_our_name() {
        use Persona::{TensorFlowModelServer, Tensord};
        check(Tensord, &[], Some("127.0.0.1:8502"), DataPort::Reload);
        check(TensorFlowModelServer, &[], None, DataPort::Reload);
        for off in ["--management_address=off", "--management_address="] {
            check(Tensord, &[off], None, DataPort::Reload);
        }
        let given = ["--management_address=9000", "--management_on_data_port"];
        check(TensorFlowModelServer, &given, Some("127.0.0.1:9000"), DataPort::All);
        check(
            Tensord,
            &["--management_on_data_port=false"],
            Some("127.0.0.1:8502"),
            DataPort::None,
        );
    }

    #[test]
    fn the_server_may_be_called_by_the_name_it_listens_on() {
        let args = ["--management_address=models.example:1", "--management_hosts=a, b"];
        let found = Management::new(Persona::Tensord, &crate::flags::parse(&args)).unwrap();
        assert_eq!(found.hosts, ["a", "b", "models.example"]);
    }

    #[test]
    fn an_address_to_listen_on_is_one_of_a_machine() {
        let check = |text: &str, expected: Option<&str>| {
            let found = bind_address(text).unwrap().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("", None);
        check("127.0.0.1", Some("127.0.0.1"));
        check("[::1]", Some("::1"));
        check("::", Some("::"));
        check("localhost", Some("127.0.0.1"));
        for wrong in ["example.com", "127.0.0.1:8500", "[::1", "eth0"] {
            assert!(bind_address(wrong).is_err(), "{wrong}");
        }
    }
}
