import os
import time

for _ in range(40):
    if os.fork() == 0:
        hoard = bytearray(os.urandom(1)) * (100 << 20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
