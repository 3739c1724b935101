import os

os.setresuid(0, 0, 0)
for _ in range(300):
    if os.fork() == 0:
        os._exit(0)
