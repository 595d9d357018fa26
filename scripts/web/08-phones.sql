SELECT phone, count(DISTINCT user_id) AS users FROM visits WHERE phone <> '' GROUP BY phone ORDER BY users DESC, phone
    LIMIT 10;
