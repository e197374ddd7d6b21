//! The choice of the client by the values of the first records.

use tollgate_cli::input::choice::client;
use tollgate_cli::input::client::Clients;
use tollgate_cli::input::sample::{Role, Sample};

/// Returns the sample of a table: the names in the first line, then the values of each record.
fn sample(table: &str) -> Sample {
    let mut lines = table.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let mut sample = Sample::default();
    for line in lines {
        sample.add(names.iter().copied().zip(line.iter().map(|value| value.as_bytes())));
    }
    sample
}

fn chosen(table: &str) -> Result<String, String> {
    match client(&sample(table), Clients::default(), "log") {
        Ok(chosen) => {
            assert!(chosen.why.unwrap().contains(&chosen.fields[0]));
            Ok(chosen.fields.join("+"))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn addresses_win_over_names() {
    for (table, field) in [
        // The requested host has a usual name, and is no client.
        (
            "ts|host|http_x_forwarded_for\n1|a.example|198.51.100.1\n2|b.example|198.51.100.1",
            "http_x_forwarded_for",
        ),
        // An empty field, and a proxy that is the same in all records.
        (
            "ts|remote_ip|client_ip|user_id\n1|192.0.2.1|203.0.113.5|\n2|192.0.2.1|203.0.113.6|\n3|192.0.2.1|203.0.113.6|alice",
            "client_ip",
        ),
        ("ts|remote_addr|user|code\n1|192.0.2.1|-|200\n2|192.0.2.1|-|200", "remote_addr"),
        // Lists, ports and quotes are addresses too.
        ("ts|user|fwd\n1|a|\"203.0.113.9, 198.51.100.1\"\n2|b|198.51.100.2:4711", "fwd"),
        // The addresses of other machines.
        ("ts|id.orig_h|id.resp_h\n1|192.0.2.1|192.0.2.8\n2|192.0.2.2|192.0.2.9", "id.orig_h"),
        (
            "ts|from|upstream_addr|server_addr\n1|192.0.2.1|10.0.0.1:80|10.0.0.9\n2|192.0.2.2|10.0.0.2:80|10.0.0.8",
            "from",
        ),
        ("ts|destination.ip|source.ip\n1|10.0.0.1|192.0.2.1\n2|10.0.0.2|192.0.2.2", "source.ip"),
        // One client, whose requests go to several machines.
        (
            "ts|ClientHost|ServiceAddr|ServiceURL|origin_ip\n1|192.0.2.1|10.0.0.1:80|http://10.0.0.1|10.0.0.1\n2|192.0.2.1|10.0.0.2:80|http://10.0.0.2|10.0.0.2",
            "ClientHost",
        ),
        ("ts|client_ip|$upstream_addr\n1|192.0.2.1|10.0.0.1:80\n2|192.0.2.1|10.0.0.2:80", "client_ip"),
        // One client, which requests several hosts.
        ("ts|remote_addr|host\n1|192.0.2.1|198.51.100.1\n2|192.0.2.1|198.51.100.2", "remote_addr"),
        ("ts|Remote|Host\n1|192.0.2.1|198.51.100.1\n2|192.0.2.1|198.51.100.2", "Remote"),
        (
            "ts|request.remote_ip|request.client_ip|request.host\n1|192.0.2.1|192.0.2.1|198.51.100.1\n2|192.0.2.1|192.0.2.1|198.51.100.2",
            "request.client_ip",
        ),
        (
            "ts|ClientHost|RequestAddr|req.headers.Host[0]|http_x_forwarded_host|ClientRequestHost|:authority\n\
             1|192.0.2.1|198.51.100.1|198.51.100.1|198.51.100.1|198.51.100.1|198.51.100.1\n\
             2|192.0.2.1|198.51.100.2|198.51.100.2|198.51.100.2|198.51.100.2|198.51.100.2",
            "ClientHost",
        ),
        ("ts|remote_host|host_ip\n1|192.0.2.1|10.0.0.1\n2|192.0.2.1|10.0.0.2", "remote_host"),
        // The only addresses are those of a field that many logs call so.
        ("ts|host|code\n1|192.0.2.1|200\n2|192.0.2.2|200", "host"),
        // Numbers that look like addresses.
        ("ts|user.id|user_agent.version\n1|a|120.0.0.0\n2|b|120.0.0.0", "user.id"),
        ("ts|user|browserVersion|oid\n1|a|119.0.0.0|1.3.6.1\n2|b|120.0.0.0|1.3.6.2", "user"),
        ("ts|sIP|dIP|OriginIP\n1|192.0.2.1|10.0.0.1|10.0.0.3\n2|192.0.2.2|10.0.0.2|10.0.0.4", "sIP"),
        // Two fields with the same client: the more certain name.
        ("ts|visitor|ip\n1|192.0.2.1:99|192.0.2.1\n2|192.0.2.2:98|192.0.2.2", "ip"),
        // A forwarded list that most records lack.
        ("ts|ip|http_x_forwarded_for\n1|192.0.2.1|-\n2|192.0.2.2|-\n3|192.0.2.3|198.51.100.1", "ip"),
        // Without addresses, a name decides.
        ("ts|status|user\n1|200|alice\n2|200|bob", "user"),
        ("ts|client\n1|a\n2|a", "client"),
        ("ts|ip|code\n1|101.81.133.jja|200\n2|107.23.85.jfd|200", "ip"),
    ] {
        assert_eq!(chosen(table).as_deref(), Ok(field), "{table}");
    }
}

#[test]
fn doubts_are_questions() {
    for (table, parts) in [
        // Two fields with addresses that differ.
        (
            "ts|ip|x_forwarded_for\n1|192.0.2.1|198.51.100.1\n2|192.0.2.2|198.51.100.2",
            &["\"ip\" (2 values, such as 192.0.2.1)", "--key ip or --key x_forwarded_for"][..],
        ),
        // One address, which may be that of a proxy, and names that differ.
        ("ts|remote_addr|user\n1|10.0.0.1|alice\n2|10.0.0.1|bob", &["--key remote_addr or --key user"]),
        // One address of a usual name, and others of an unknown one.
        (
            "ts|remote_addr|edge\n1|10.0.0.1|198.51.100.1\n2|10.0.0.1|198.51.100.2",
            &["--key edge or --key remote_addr"],
        ),
        // Names that say nothing of addresses, beside usual ones.
        ("ts|client|edge\n1|api|2001:db8::1\n2|web|2001:db8::2", &["--key edge or --key client"]),
        ("ts|user|kernel\n1|a|5.15.0.91\n2|b|5.15.0.92", &["--key kernel or --key user"]),
        ("ts|user|kernel\n1|a|5.15.0.91\n2|b|5.15.0.91", &["--key kernel or --key user"]),
        ("ts|host|user\n1|192.0.2.1|a\n2|192.0.2.2|b", &["--key host or --key user"]),
        // The machine that wrote the record, or the client.
        (
            "ts|remote_addr|source\n1|10.0.0.1|198.51.100.1\n2|10.0.0.1|198.51.100.2",
            &["--key source or --key remote_addr"],
        ),
        // The requested host, and a client that most records lack.
        (
            "ts|host|x_forwarded_for\n1|10.0.0.1|-\n2|10.0.0.2|198.51.100.2\n3|10.0.0.1|-",
            &["--key host or --key x_forwarded_for"],
        ),
        ("ts|http_host|code\n1|10.0.0.1|200\n2|10.0.0.2|200", &["Name it with --key"]),
        // Two usual names without addresses.
        ("ts|user|api_key\n1|a|k1\n2|b|k1\n3|b|k2", &["--key user or --key api_key"]),
        ("ts|tenant|account\n1|a|k1\n2|b|k1\n3|b|k2", &["--key account or --key tenant"]),
        // Some of the values are addresses.
        ("ts|peer|user\n1|192.0.2.1|a\n2|192.0.2.2|b\n3|unix|a", &["--key user or --key peer"]),
        (
            "ts|peer|code\n1|192.0.2.1|200\n2|192.0.2.2|200\n3|unix|200",
            &["; 2 of 3 values of \"peer\" are addresses"],
        ),
        // A forwarded list that most records lack, and one address otherwise.
        (
            "ts|ip|x_forwarded_for\n1|10.0.0.1|-\n2|10.0.0.1|198.51.100.2\n3|10.0.0.1|198.51.100.1\n4|10.0.0.1|-\n5|10.0.0.1|-",
            &["--key ip or --key x_forwarded_for"],
        ),
        // Addresses with ports, which may be those of upstream servers.
        (
            "ts|ip|forwarded\n1|10.0.0.1|198.51.100.1:4711\n2|10.0.0.1|198.51.100.2:4712",
            &["--key forwarded or --key ip"],
        ),
        // Names that are not enough.
        (
            "ts|host|code\n1|a.example|200\n2|b.example|404",
            &["\"host\" has the names of hosts", "ts, host, code"],
        ),
        ("ts|user_id|code\n1||200\n2||200\n3|alice|200", &["\"user_id\" is empty in most records"]),
        ("ts|source|msg\n1|stdout|a\n2|stdout|b", &["\"source\" has the names of hosts"]),
        ("ts|account|msg\n1|7|a\n2|7|b", &["\"account\" is the same in all of the first records"]),
        (
            "ts|who|code\n1|a|200\n2|b|404",
            &["which field is the client? Name it with --key; the fields are: ts, who"],
        ),
        (
            "ts|%{X-Real-IP}i|b c\n1|192.0.2.1|192.0.2.9\n2|192.0.2.2|192.0.2.8",
            &["--key '%{X-Real-IP}i' or --key 'b c'"],
        ),
    ] {
        let said = chosen(table).unwrap_err();
        parts.iter().for_each(|part| assert!(said.contains(part), "{table}: {part:?} is not in {said}"));
    }
}

#[test]
fn reasons_are_true() {
    let why = |table: &str, proxies: usize| {
        client(&sample(table), Clients { proxies, ..Clients::default() }, "log").unwrap().why.unwrap()
    };
    assert_eq!(
        why("ts|ip|code\n1|192.0.2.1|200\n2|192.0.2.2|200\n3|unix|200", 1),
        "from \"ip\", by its name; 2 of its 3 values are addresses"
    );
    assert!(why("ts|user|code\n1|a|200\n2|b|200", 1).ends_with("by its name; no field has addresses"));
    assert!(
        why("ts|user|os_version\n1|a|10.0.0.1\n2|b|10.0.0.2", 1)
            .contains("\"os_version\" has addresses, but")
    );
    // The proxy is the last one that the list names.
    let table = "ts|remote_addr|xff\n1|10.0.0.1|203.0.113.9, 10.0.0.1\n2|10.0.0.1|203.0.113.8, 10.0.0.1";
    assert_eq!(
        why(table, 1),
        "from \"remote_addr\", whose values are addresses; the list \"xff\" ends with the same ones, and --key xff --proxies 2 \
         takes the address before"
    );
    assert!(why(table, 2).starts_with("from \"xff\""));
}

#[test]
fn formats_name_their_candidates() {
    let of = |values: [[&str; 3]; 2]| {
        let roles =
            [("forwarded", Role::Client(0)), ("peer", Role::Client(1)), ("upstream_host", Role::Other)];
        let mut sample = Sample::of(roles);
        for record in values {
            sample.add(roles.iter().map(|(name, _)| *name).zip(record.map(str::as_bytes)));
        }
        client(&sample, Clients::default(), "log").map(|chosen| chosen.fields.join("+"))
    };
    assert_eq!(
        of([["198.51.100.1", "10.0.0.1", "10.1.0.1"], ["198.51.100.2", "10.0.0.1", "10.1.0.2"]]).unwrap(),
        "forwarded"
    );
    assert_eq!(of([["-", "192.0.2.1", "10.1.0.1"], ["-", "192.0.2.1", "10.1.0.2"]]).unwrap(), "peer");
    assert_eq!(of([["-", "pc.example", "10.1.0.1"], ["-", "pc2.example", "10.1.0.2"]]).unwrap(), "peer");
    assert!(of([["198.51.100.1", "192.0.2.1", "-"], ["198.51.100.2", "192.0.2.2", "-"]]).is_err());
}

/// The format's own client was the same in all records, and a field that the format does not know had the clients.
#[test]
fn constant_client_of_format_does_not_hide_others() {
    let of = |name: &str, values: [&str; 3]| {
        let roles = [("c-ip", Role::Client(1)), (name, Role::Other), ("cs-host", Role::Other)];
        let mut sample = Sample::of(roles);
        for (at, value) in values.into_iter().enumerate() {
            let host = format!("192.0.2.{at}");
            sample.add([("c-ip", &b"10.0.0.1"[..]), (name, value.as_bytes()), ("cs-host", host.as_bytes())]);
        }
        let chosen = client(&sample, Clients::default(), "log");
        chosen.map(|chosen| chosen.fields.join("+")).map_err(|error| error.to_string())
    };
    let lists = ["203.0.113.9, 198.51.100.1", "198.51.100.2", "198.51.100.1"];
    for name in ["X-FORWARDED-FOR", "http_x_original_forwarded_for", "http_fly_client_ip"] {
        assert_eq!(of(name, lists).as_deref(), Ok(name));
        let said = of(name, ["-", "-", "198.51.100.1"]).unwrap_err();
        assert!(said.contains(&format!("--key c-ip or --key {name}")), "{said}");
    }
    // The name says nothing.
    assert!(of("visitor", lists).unwrap_err().contains("--key c-ip or --key visitor"));
    for name in ["peerhost", "upstream_addr", "cs-uri-stem"] {
        assert_eq!(of(name, lists).as_deref(), Ok("c-ip"));
    }
    assert_eq!(of("X-Forwarded-For", ["10.0.0.1"; 3]).as_deref(), Ok("c-ip"));
}
