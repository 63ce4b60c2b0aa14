# The machines of docs/operations.md, docs/how-to/scale.md, upgrade.md and alarms.md: three members with the file of
# the page, and two nodes that know nobody.
[[ -e node1.toml ]] || sed -n '/file: node1.toml/,/^[^ <]/s/^    //p' docs/operations.md >node1.toml
for n in 1 2 3 4 5; do
    ip addr replace "10.0.0.$n/32" dev lo
    ip addr replace "10.1.0.$n/32" dev lo
    sed -e "/^listen/s/0\.1:/0.$n:/" -e "/^localhost/s/0\.1:/0.$n:/" -e "/^instance_id/s/1 /$n /" node1.toml >"own$n.toml"
    ((n <= 3)) || sed -i '/^\[cluster\]/,$d' "own$n.toml"
    chronos --config "own$n.toml" --no-pin --shards 1 >"node$n.log" 2>&1 &
done
for n in 4 5; do
    until curl -s "http://10.1.0.$n:7254/readyz" >/dev/null; do sleep 0.1; done
done
echo '{"nodes": ["10.0.0.1:7253", "10.0.0.2:7253", "10.0.0.3:7253"]}' >members.json
until chronos cluster status --admin 10.1.0.1:7254 >status 2>&1; do sleep 0.1; done
