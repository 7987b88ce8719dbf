#!/usr/bin/env bash

#BSUB -J dask-worker
#BSUB -q long
#BSUB -P "vectors"
#BSUB -n 2
#BSUB -R "span[hosts=1]"
#BSUB -M 17179870
#BSUB -W 04:00:00
#BSUB -r y
module load python
/opt/bitfleet/bin/python -m distributed.cli.dask_worker tls://HEAD:PORT --name dummy-name --nthreads 2 --memory-limit 16.00GiB --nanny --death-timeout 60 --dashboard-address 127.0.0.1:0 --protocol tls:// --tls-ca-file FILE --tls-cert FILE --tls-key FILE
