#!/bin/sh
# One site of the trial in compose.yaml: keys and pins at the first start, then the agent. SITE, OTHERS: names.
set -eu
SITE_FOLDER="${SITE_FOLDER:-/site}"
CARDS="${CARDS:-/cards}"
HOST="${HOST:-$SITE}"
PORT="${PORT:-7440}"
OPERATOR="${OPERATOR:-127.0.0.1:7441}"
if [ ! -f "$SITE_FOLDER/site.toml" ]; then
  python3 - "$SITE" "$SITE_FOLDER/visits.csv" <<'ROWS'
import random, sys
draw = random.Random(sys.argv[1])
with open(sys.argv[2], "w") as file:
    file.write("ill,colour,age\n")
    for _ in range(200):
        file.write(f"{draw.choice(('yes', 'no'))},{draw.choice(('red', 'blue'))},{draw.randrange(121)}\n")
ROWS
  blindbayes site init "$SITE_FOLDER" --name "$SITE" --listen "0.0.0.0:$PORT" --address "$HOST:$PORT" \
    --operator "$OPERATOR" --table "$SITE_FOLDER/visits.csv" --exact-sums
fi
cp "$SITE_FOLDER/card.toml" "$CARDS/$SITE.toml"
for other in $OTHERS; do
  until [ -f "$CARDS/$other.toml" ]; do sleep 1; done
  words=$(sed -n 2p "$CARDS/$other.toml" | sed 's/^# *//')   # in earnest: by telephone
  blindbayes site pin "$CARDS/$other.toml" --words "$words" --replace --config "$SITE_FOLDER"
done
exec blindbayes site serve --log-json --config "$SITE_FOLDER"
