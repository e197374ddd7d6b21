//! A Redis client that waits without its thread.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Life, Port};

pub(super) struct Resp(BufReader<Port>);

impl Resp {
    /// Connects as a user.
    pub(super) async fn login(life: &Life<'_>, user: &str) -> io::Result<Self> {
        let mut client = Self(BufReader::new(life.port("resp").await?));
        let answer = client.ask(&format!("AUTH {user} {user}-secret\r\n"), 1).await?;
        assert_eq!(answer, [["+OK"]], "{user}");
        Ok(client)
    }

    /// Sends commands, and returns this number of replies.
    pub(super) async fn ask(&mut self, commands: &str, replies: usize) -> io::Result<Vec<Vec<String>>> {
        self.0.write_all(commands.as_bytes()).await?;
        let mut all = Vec::new();
        for _ in 0..replies {
            all.push(self.reply().await?);
        }
        Ok(all)
    }

    /// Sends a command, and returns its reply.
    pub(super) async fn say(&mut self, command: &str) -> io::Result<Vec<String>> {
        Ok(self.ask(command, 1).await?.remove(0))
    }

    pub(super) async fn send(&mut self, commands: &str) -> io::Result<()> {
        self.0.write_all(commands.as_bytes()).await
    }

    /// Reads a reply: its lines, and the texts of arrays in arrays one after the other.
    pub(super) async fn reply(&mut self) -> io::Result<Vec<String>> {
        let (mut lines, mut wanted) = (Vec::new(), 1);
        while wanted > 0 {
            wanted -= 1;
            let mut line = String::new();
            if self.0.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_owned();
            let number = || line[1..].parse::<usize>().unwrap_or(0);
            match line.as_bytes()[0] {
                b'*' => wanted += number(),
                b'$' if line != "$-1" => {
                    let mut text = vec![0; number() + 2];
                    self.0.read_exact(&mut text).await?;
                    lines.push(String::from_utf8_lossy(&text).trim_end().to_owned());
                    continue;
                }
                _ => {}
            }
            lines.push(line);
        }
        Ok(lines)
    }
}
