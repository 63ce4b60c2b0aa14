# The node that docs/api.md asks.
chronos --no-pin --shards 1 >node.log 2>&1 &
until curl -s http://127.0.0.1:7254/readyz >/dev/null; do sleep 0.1; done
