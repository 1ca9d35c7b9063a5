// Workers of a service on virtual machines at spot prices, beside or instead of those of Container Apps.
//
//   az deployment group create --resource-group GROUP --template-file infra/scale-set/workers.bicep --parameters ...
//
// Then run infra/scale-set/scale.sh every minute, with SWATHMILL_SCALE_IN_SECONDS set for the manager.
targetScope = 'resourceGroup'

@description('Region of the machines.')
param location string = resourceGroup().location

@description('Short name of the service, as deployed by infra/bicep/main.bicep in this group.')
param name string = 'swathmill'

@description('Image of the service, as deployed.')
@minLength(1)
param image string

@description('Registry of the image; empty: the image is public.')
param registryServer string = ''

@description('Subnet of the machines: it reaches the service and its private ends, and has a way out for packages of the system and granules.')
param subnetId string

@description('What SWATHMILL_STORAGE is for the other processes.')
param storage string

@description('Sources of granules, as for the other processes.')
param sources string

@description('Name of the vault of the service.')
param vaultName string

@description('Public key of who may sign in to the machines, from inside the network.')
param adminPublicKey string

@description('Size of a machine.')
param size string = 'Standard_D2as_v5'

@description('Attempts one worker runs at once; as many as a machine has processors.')
param slots int = 2

@description('Machines to begin with; scale.sh changes the number.')
param machines int = 0

@description('Settings of docs/settings.md for workers and runners, a line NAME=VALUE each.')
param settings string = 'SWATHMILL_SANDBOX=limits\nSWATHMILL_GRACE_SECONDS=540\nSWATHMILL_ATTEMPT_MEMORY_GB=3\nSWATHMILL_ATTEMPT_DISK_GB=10'

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: '${name}-worker-id'
}

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: vaultName
}

var withImage = replace(replace(loadTextContent('worker.sh'), '{image}', image), '{registry}', registryServer)
var withIdentity = replace(replace(withImage, '{identity}', identity.properties.clientId), '{vault}', vault.properties.vaultUri)
var withStorage = replace(replace(withIdentity, '{storage}', storage), '{sources}', sources)
var firstStart = replace(replace(withStorage, '{settings}', settings), '{slots}', string(slots))

resource workers 'Microsoft.Compute/virtualMachineScaleSets@2024-07-01' = {
  // checkov:skip=CKV_AZURE_95: machines live for hours and begin with the newest image; patching would end attempts
  name: '${name}-workers'
  location: location
  sku: {
    name: size
    tier: 'Standard'
    capacity: machines
  }
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    orchestrationMode: 'Uniform'
    overprovision: false
    singlePlacementGroup: false
    upgradePolicy: {
      mode: 'Manual'
    }
    virtualMachineProfile: {
      priority: 'Spot'
      evictionPolicy: 'Delete'
      billingProfile: {
        maxPrice: -1
      }
      // A machine that is deleted is told ten minutes before: its worker ends its attempts.
      scheduledEventsProfile: {
        terminateNotificationProfile: {
          enable: true
          notBeforeTimeout: 'PT10M'
        }
      }
      securityProfile: {
        encryptionAtHost: true
        securityType: 'TrustedLaunch'
        uefiSettings: {
          secureBootEnabled: true
          vTpmEnabled: true
        }
      }
      osProfile: {
        computerNamePrefix: take('${name}-w-', 15)
        adminUsername: 'swathmill'
        customData: base64(firstStart)
        linuxConfiguration: {
          disablePasswordAuthentication: true
          ssh: {
            publicKeys: [
              {
                path: '/home/swathmill/.ssh/authorized_keys'
                keyData: adminPublicKey
              }
            ]
          }
        }
      }
      storageProfile: {
        imageReference: {
          publisher: 'Canonical'
          offer: 'ubuntu-24_04-lts'
          sku: 'server'
          version: 'latest'
        }
        osDisk: {
          createOption: 'FromImage'
          diskSizeGB: 64
          managedDisk: {
            storageAccountType: 'StandardSSD_LRS'
          }
        }
      }
      networkProfile: {
        networkInterfaceConfigurations: [
          {
            name: 'inside'
            properties: {
              primary: true
              ipConfigurations: [
                {
                  name: 'inside'
                  properties: {
                    subnet: {
                      id: subnetId
                    }
                  }
                }
              ]
            }
          }
        ]
      }
    }
  }
}

output scaleSet string = workers.name
