"""A worker that does not end its session: leaver.py exit|kill URL OWNER"""

import json
import os
import signal
import sys

from by_hand import Client, by_hand
from mcp_leash import Leash

way, url, owner = sys.argv[1:]
session = Leash().session({"hand": by_hand("--helper"), "web": {"url": url}}, owner=owner)
pids = Client(session.servers["hand"].url).call("pids")
Client(session.servers["web"].url)
print(json.dumps({"id": session.id, "pids": pids}), flush=True)
if way == "exit":
    os._exit(0)
signal.pause()
