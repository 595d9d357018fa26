-- Betweenness centrality of the nodes of LinkBench's graph: how many shortest paths pass through each, of all paths of
-- at most three links from a sample of the nodes. A pair of nodes with several shortest paths counts once in all.
WITH RECURSIVE
-- All walks from the sampled sources, one link longer in each round.
walk (source, node, depth) AS (
    SELECT id, id, 0 FROM nodetable WHERE id % 500 = 1
    UNION ALL
    SELECT w.source, l.id2, w.depth + 1 FROM walk AS w JOIN linktable AS l ON l.id1 = w.node
    WHERE w.depth < 3 AND l.visibility = 1 AND l.id2 <> w.source),
-- The shortest walks to a node are its shortest paths: their number, by level.
level AS (
    SELECT source, node, depth, paths
    FROM (SELECT source, node, depth, count(*) AS paths, min(depth) OVER (PARTITION BY source, node) AS least
          FROM walk GROUP BY source, node, depth) AS counted
    WHERE depth = least),
-- Each link that leaves a node of a level, with the paths to that node. Materialised, so that both sides of the next
-- join are small: nobody can know how many nodes a level has.
onward (source, node, depth, before, paths) AS MATERIALIZED (
    SELECT p.source, l.id2, p.depth + 1, p.node, p.paths
    FROM level AS p JOIN linktable AS l ON l.id1 = p.node WHERE l.visibility = 1),
-- Each last link of such a path, with the share of the paths to `node` that it ends.
step AS (
    SELECT n.source, n.node, o.before, o.paths::float8 / n.paths AS share
    FROM level AS n JOIN onward AS o ON o.source = n.source AND o.node = n.node AND o.depth = n.depth
    WHERE n.depth > 1),
-- From every node back towards the source: the share of its paths that pass through each node on the way.
back (source, node, share) AS (
    SELECT source, before, share FROM step
    UNION ALL
    SELECT b.source, s.before, b.share * s.share FROM back AS b
    JOIN step AS s ON s.source = b.source AND s.node = b.node)
SELECT node, sum(share) AS betweenness FROM back GROUP BY node ORDER BY betweenness DESC, node LIMIT 10;
