#!/usr/bin/env python3
"""Makes airports.csv from the airports.csv of the PyPI package airportsdata.

usage: select_airports.py airportsdata/airports.csv > airports.csv

Rule: of all airports that have an IATA code and a city, in the order of "International" in the name
first and then of the code, take each that lies at least 150 km from every airport taken before it.
What stays covers the world evenly, and the first N lines are such a choice as well.
"""

import csv
import math
import sys

EARTH_RADIUS_KM = 6371.0088
SPACING_KM = 150


def unit_vector(airport):
    lat, lon = math.radians(float(airport["lat"])), math.radians(float(airport["lon"]))
    return (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))


sys.stdout.reconfigure(encoding="utf-8")
with open(sys.argv[1], encoding="utf-8", newline="") as table:
    candidates = [row for row in csv.DictReader(table) if row["iata"] and row["city"]]
candidates.sort(key=lambda row: ("International" not in row["name"], row["iata"]))

shortest_chord = 2 * math.sin(SPACING_KM / EARTH_RADIUS_KM / 2)
taken = []
print("iata,lat,lon,country,city")
for row in candidates:
    here = unit_vector(row)
    if all(math.dist(here, there) >= shortest_chord for there in taken):
        taken.append(here)
        # The city stands last, because it may hold a comma.
        print(row["iata"], row["lat"], row["lon"], row["country"], row["city"], sep=",")
