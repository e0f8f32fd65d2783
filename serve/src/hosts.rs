//! Host names by which requests may address a server.
//!
//! A web page can have its own name resolve to 127.0.0.1 (DNS rebinding); the browser then takes the server for the page's own
//! and lets the page read answers. Such requests have the page's name in the header `Host`, so a server that only this
//! machine reaches answers for the names of this machine alone.

use std::net::IpAddr;

/// Host names for which a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Names besides those of this machine, in lower case; none if the server answers for every name.
    names: Option<Vec<String>>,
}

impl Hosts {
    /// The names of this machine and `more`, on a loopback address or if there are some; else all. `address` is that of
    /// the socket, whatever name it was opened by; none for a UNIX socket.
    pub fn new(address: Option<IpAddr>, more: &[String]) -> Hosts {
        let only_here = address.is_some_and(is_loopback);
        let names = more.iter().map(|name| bare(name).to_ascii_lowercase()).collect();
        Hosts { names: (only_here || !more.is_empty()).then_some(names) }
    }

    /// Whether the server answers for a host, which may have a port.
    pub fn allow(&self, host: &str) -> bool {
        let name = bare(host).to_ascii_lowercase();
        self.names.as_ref().is_none_or(|names| is_here(&name) || names.contains(&name))
    }
}

/// Whether a name is that of this machine for itself. Browsers do not look up `localhost`, nor addresses.
fn is_here(name: &str) -> bool {
    name == "localhost" || name.parse().is_ok_and(is_loopback)
}

/// Whether only this machine reaches an address, which may be of version 4 in the form of version 6.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A host without port, brackets and the dot at its end.
fn bare(host: &str) -> &str {
    let host = host.trim();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        // An address of version 6 without brackets has several colons.
        None if host.matches(':').count() == 1 => host.split(':').next().unwrap_or(host),
        None => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_machine_answers_for_its_names_alone() {
        let on = |address: &str| Some(address.parse().unwrap());
        let here =
            ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "::1"];
        let others =
            ["evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil", ""];
        for address in ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"].map(on) {
            let hosts = Hosts::new(address, &[]);
            assert!(here.iter().all(|host| hosts.allow(host)), "{address:?}");
            assert!(!others.iter().any(|host| hosts.allow(host)), "{address:?}");
            let hosts = Hosts::new(address, &["Chat.Example".to_owned()]);
            assert!(
                hosts.allow("chat.example:443") && hosts.allow("localhost") && !hosts.allow("evil.example")
            );
        }
        for address in [on("0.0.0.0"), on("::"), on("10.0.0.1"), None] {
            let all = Hosts::new(address, &[]);
            assert!(others.iter().all(|host| all.allow(host)), "{address:?}");
        }
        let some = Hosts::new(on("0.0.0.0"), &["chat.example".to_owned()]);
        assert!(some.allow("chat.example") && some.allow("127.0.0.1") && !some.allow("evil.example"));
    }
}
